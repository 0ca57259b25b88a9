# Completion of robot-rl for fish.

function __robot_rl_complete
    set -l line (commandline -cp | string collect)
    set -l words (commandline -opc)
    $words[1] completion suggest $line 2>/dev/null
end

complete -c robot-rl -f -a '(__robot_rl_complete)'

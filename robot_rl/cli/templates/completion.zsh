#compdef robot-rl
# Completion of robot-rl for zsh: source this file, or put it as _robot-rl into a folder of $fpath.

_robot_rl() {
    local -a open closed
    local word
    while IFS= read -r word; do
        if [[ $word == *[=./] ]]; then
            open+=("$word")
        else
            closed+=("$word")
        fi
    done < <("${words[1]}" completion suggest "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)
    if ((${#open} + ${#closed} == 0)); then
        compset -P '*='
        _files
        return
    fi
    ((${#open})) && compadd -S '' -a open
    ((${#closed})) && compadd -a closed
}

if [[ ${funcstack[1]} == _robot-rl ]]; then
    _robot_rl "$@"
else
    (($+functions[compdef])) || { autoload -Uz compinit && compinit }
    compdef _robot_rl robot-rl
fi

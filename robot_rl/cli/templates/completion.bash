# Completion of robot-rl for bash: source this file.

_robot_rl() {
    local line=${COMP_LINE:0:COMP_POINT} head="" word char i
    local current=${line##*[[:space:]]}
    # Bash completes the part behind the last = or : of a word, if these break words.
    for ((i = ${#current} - 1; i >= 0; i--)); do
        char=${current:i:1}
        if [[ $char == [=:] && $COMP_WORDBREAKS == *"$char"* ]]; then
            head=${current:0:i+1}
            break
        fi
    done
    COMPREPLY=()
    while IFS= read -r word; do
        [[ $word == *[=./] ]] || word+=" "
        COMPREPLY+=("${word#"$head"}")
    done < <("${COMP_WORDS[0]}" completion suggest "$line" 2>/dev/null)
}

complete -o nospace -o default -F _robot_rl robot-rl

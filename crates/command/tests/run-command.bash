
# Behind `run KEY --` stands a command, which has completions of its own. Only the package
# bash-completion can offer those. Its function was renamed in 2.12; the new one counts in `words` if
# that is set, else in COMP_WORDS (github.com/scop/bash-completion/commit/25d5f8f). Without the
# package, the name of the command is completed, and then files.
_poolcounter_or_command() {
    local i is_run= offset= words
    unset -v words
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == run ]]; then
            is_run=1
        elif [[ $is_run && ${COMP_WORDS[i]} == -- ]]; then
            offset=$((i + 1))
            # run -- KEY -- COMMAND
            [[ ${COMP_WORDS[i + 2]-} == -- ]] && offset=$((i + 3))
            break
        fi
    done
    if [[ ! $offset || $COMP_CWORD -lt $offset ]]; then
        _poolcounter "$@"
        return
    fi
    for i in _comp_command_offset _command_offset; do
        if declare -F "$i" > /dev/null; then
            "$i" "$offset"
            return
        fi
    done
    COMPREPLY=()
    if ((COMP_CWORD == offset)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}
complete -F _poolcounter_or_command -o bashdefault -o default poolcounter

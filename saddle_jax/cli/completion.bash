# Completion of saddle for bash: source this file, or put it where bash looks for completions.
_saddle() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" option="" words=""
    if [[ $current == "=" ]]; then option="$before"; current=""
    elif [[ $before == "=" ]]; then option="${COMP_WORDS[COMP_CWORD-2]}"; fi
    COMPREPLY=()
    if [[ -n $option ]]; then
        case "$option" in
@VALUES@
        esac
        [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    local verb="${COMP_WORDS[1]}"
    if [[ $COMP_CWORD -gt 2 ]]; then
        case "$verb ${COMP_WORDS[2]}" in
@PAIRS@
        esac
    fi
    if [[ $COMP_CWORD -eq 1 ]]; then words="@VERBS@"
    else
        case "$verb" in
@OPTIONS@
        esac
        [[ $current != -* ]] && words=""
        case "$verb:$COMP_CWORD" in
@SUBVERBS@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _saddle saddle

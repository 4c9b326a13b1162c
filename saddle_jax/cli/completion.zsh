#compdef saddle
# Completion of saddle for zsh: put this file as _saddle into a folder of $fpath, or source it.
_saddle() {
    local -a found
    local verb=$words[2]
    if (( CURRENT == 2 )); then
        found=(@DESCRIBED@)
        _describe verb found
        return
    fi
    if [[ $PREFIX == --*=* ]]; then
        local option=${PREFIX%%=*}
        compset -P '*='
        case $option in
@VALUES@
            *) _files; return ;;
        esac
        compadd -- $found
        return
    fi
    case "$verb $words[3]" in
@PAIRS@
    esac
    case $verb in
@OPTIONS@
    esac
    if (( CURRENT == 3 )); then
        case $verb in
@SUBVERBS@
        esac
    fi
    if [[ $PREFIX == -* ]]; then compadd -S '' -- $found; else _files; fi
}
if [[ $funcstack[1] == _saddle ]]; then _saddle "$@"; else compdef _saddle saddle; fi

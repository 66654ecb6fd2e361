#compdef qlock
# zsh completion for qlock. Load it with: source <(qlock completion zsh)
_qlock() {
    local -a candidates
    candidates=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then
        compadd -- "${candidates[@]}"
    else
        _default
    fi
}
if [[ "${funcstack[1]}" == "_qlock" ]]; then
    _qlock "$@"
else
    compdef _qlock qlock
fi

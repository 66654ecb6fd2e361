# bash completion for qlock. Load it with: source <(qlock completion bash)
_qlock() {
    local IFS=$'\n' words=("${COMP_WORDS[@]:1:COMP_CWORD}") candidate
    COMPREPLY=()
    while read -r candidate; do
        COMPREPLY+=("$(printf '%q' "$candidate")")
    done < <("${COMP_WORDS[0]}" complete -- "${words[@]}" 2>/dev/null)
}
complete -o bashdefault -o default -F _qlock qlock

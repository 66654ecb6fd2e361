# fish completion for qlock. Load it with: qlock completion fish | source
function __qlock_candidates
    set -l words (commandline -opc)
    $words[1] complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c qlock -n 'test (count (__qlock_candidates)) -gt 0' -f -a '(__qlock_candidates)'

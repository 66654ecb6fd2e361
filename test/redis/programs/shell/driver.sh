#!/bin/bash
# Drives redis-cli: reads steps and prints outcomes, as driver_test.go describes.
#
#     driver.sh CLIENT ADDRESS
set -uo pipefail

release='if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end'
extend='if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end'
declare -A values

# cli runs a command and leaves its answer in $answer. It prints an error outcome if the command failed.
cli() {
  answer=$(redis-cli -e -h "${address%:*}" -p "${address##*:}" "$@" 2>&1) && return
  printf '{"error": "redis-cli: %s"}\n' "$(tr -d '"\\\n' <<<"$answer")"
  return 1
}

# is prints whether the last answer is as given.
is() { if [ "$answer" = "$1" ]; then echo '{"ok": true}'; else echo '{"ok": false}'; fi; }

address=$2
printf '{"version": "%s"}\n' "$(redis-cli --version | cut -d' ' -f2)"
while read -r step key ttl; do
  case $step in
    acquire)
      value=$RANDOM$RANDOM$RANDOM
      cli SET "$key" "$value" NX PX "$ttl" || continue
      if [ "$answer" = OK ]; then values[$key]=$value; fi
      is OK ;;
    held) cli GET "$key" && is "${values[$key]}" ;;
    extend) cli EVAL "$extend" 1 "$key" "${values[$key]}" "$ttl" && is 1 ;;
    release) cli EVAL "$release" 1 "$key" "${values[$key]}" && is 1 ;;
    ttl) cli PTTL "$key" && printf '{"ttl": %s}\n' "$answer" ;;
  esac
done

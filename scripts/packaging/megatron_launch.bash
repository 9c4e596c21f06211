# Completion of megatron_launch for bash: a number of ranks, a program, and then what completes that program.
_megatron_launch() {
  COMPREPLY=()
  local current=${COMP_WORDS[COMP_CWORD]}
  ((COMP_CWORD > 1)) || return 0
  if ((COMP_CWORD == 2)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${current:-megatron_}" | sort -u)
    return 0
  fi
  local program=${COMP_WORDS[2]##*/} line=$COMP_LINE function word
  if ! complete -p "$program" &> /dev/null; then
    if declare -F _completion_loader > /dev/null; then
      _completion_loader "$program" || true
    elif [[ $program == megatron_* ]]; then
      source <("${COMP_WORDS[2]}" --completion bash 2> /dev/null)
    fi
  fi
  function=$(complete -p "$program" 2> /dev/null | sed -n 's/.*-F \([^ ]*\) .*/\1/p')
  [[ -n $function ]] || return 0
  # The program sees its own words alone.
  for word in "${COMP_WORDS[@]:0:2}"; do line=${line#*"$word"}; done
  COMP_POINT=$((COMP_POINT - ${#COMP_LINE} + ${#line}))
  COMP_LINE=$line
  COMP_WORDS=("${COMP_WORDS[@]:2}")
  COMP_CWORD=$((COMP_CWORD - 2))
  "$function" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
}
complete -F _megatron_launch megatron_launch

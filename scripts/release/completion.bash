# shellcheck shell=bash disable=SC2207
# Completion for bash, and for zsh by its bashcompinit: the options of a program, their words (cpu|cuda) and its commands,
# as its --help lists them. Everything else completes names of files.
_megatron_programs=(megatron_bench megatron_checkpoint megatron_clean megatron_eval megatron_generate megatron_plan
                    megatron_preprocess megatron_train)

_megatron() {
  local IFS=$' \t\n' at=$COMP_CWORD first=0 current=${COMP_WORDS[COMP_CWORD]} program option help task='' list='' head=''
  COMPREPLY=()
  if [[ ${COMP_WORDS[0]##*/} == megatron_launch ]]; then  # its arguments: RANKS PROGRAM ARGUMENTS...
    first=2
    ((at != 2)) || COMPREPLY=($(compgen -c -- "${current:-megatron_}" | sort -u))
  fi
  program=${COMP_WORDS[first]/#\~\//$HOME/}
  ((at > first)) && [[ " ${_megatron_programs[*]} " == *" ${program##*/} "* ]] || return 0

  ((at == first + 1)) || [[ ! ${COMP_WORDS[first + 1]} =~ ^[a-z-]+$ ]] || task=${COMP_WORDS[first + 1]}
  help=$(command "$program" ${task:+"$task"} --help 2> /dev/null)
  option=${COMP_WORDS[at - 1]}
  if [[ $current == --*=* ]]; then
    option=${current%%=*} head=${current%%=*}= current=${current#*=}
  elif [[ $current == '=' ]]; then  # bash usually makes three words of --device=cpu
    current=
  elif [[ $option == '=' ]]; then
    option=${COMP_WORDS[at - 2]}
  fi

  [[ ! $option =~ ^--[a-z0-9-]+$ ]] || list=$(sed -n "s/^  $option \([^ ]*|[^ ]*\).*/\1/p" <<< "$help" | tr '|' ' ')
  if [[ -z $list && $current == -* ]]; then
    list=$(sed -nE 's/^  (-[a-z] \[ )?(--[a-z0-9-]+).*/\2/p' <<< "$help")
  elif [[ -z $list ]] && ((at == first + 1)); then
    list=$(sed -nE '/^Steps/,$ s/^  ([a-z][a-z-]*)  .*/\1/p; s/^  ([a-z][a-z-]*) [A-Z-].*/\1/p' <<< "$help")
  fi
  [[ -z $list ]] || COMPREPLY=($(compgen -P "$head" -W "$list" -- "$current"))
}
complete -o default -F _megatron megatron_launch "${_megatron_programs[@]}"

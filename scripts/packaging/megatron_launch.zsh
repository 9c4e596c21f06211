#compdef megatron_launch
# Completion of megatron_launch for zsh: a number of ranks, a program, and then what completes that program.
_arguments '1:number of ranks: ' '*:::command:_normal'

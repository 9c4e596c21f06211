#%Module1.0
# megatron_train @VERSION@, for Environment Modules and Lmod:
#   module use PREFIX/@DATA_FOLDER@/modulefiles && module load megatron_train
# A copy elsewhere means the installation in the prefix below; in its own place it finds the tree that it is in.
set prefix "@CMAKE_INSTALL_PREFIX@"
if {[info exists ModulesCurrentModulefile]} {
  set here [file normalize $ModulesCurrentModulefile]
  foreach part [split "modulefiles/megatron_train/@VERSION@/@DATA_FOLDER@" /] { set here [file dirname $here] }
  if {[file executable "$here/@BIN_FOLDER@/megatron_train"]} { set prefix $here }
}

proc ModulesHelp {} {
  puts stderr "megatron_train @VERSION@ trains GPT, BERT and T5 models on MPI ranks."
  puts stderr "megatron_launch N megatron_train INPUT.toml starts N ranks on one machine; megatron_train --help says more."
  puts stderr "Load the MPI library that it was built with, too."
}
module-whatis "megatron_train @VERSION@: trains GPT, BERT and T5 models on MPI ranks"
conflict megatron_train
prepend-path PATH "$prefix/@BIN_FOLDER@"
# man looks next to the folders of PATH, unless it is told of others.
if {[info exists env(MANPATH)]} { prepend-path MANPATH "$prefix/@MAN_FOLDER@" }
# Where bash-completion looks: these two, unless it is told of others.
if {[info exists env(XDG_DATA_DIRS)]} {
  prepend-path XDG_DATA_DIRS "$prefix/@DATA_FOLDER@"
} else {
  setenv XDG_DATA_DIRS "$prefix/@DATA_FOLDER@:/usr/local/share:/usr/share"
}
setenv MEGATRON_TRAIN_HOME "$prefix"

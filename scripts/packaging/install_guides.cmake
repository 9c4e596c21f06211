# Runs while installing: manual pages and completion as the programs print them, and the module file with the prefix.
# Needs PROGRAM_FILES, PACKAGING_FOLDER, VERSION, and BIN_FOLDER, DATA_FOLDER and MAN_FOLDER relative to the prefix.
cmake_minimum_required(VERSION 3.22)  # a script has no policies of its project
set(installed_root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")

# write_installed(FILE CONTENTS): below the prefix, and in the list of what was installed.
function(write_installed file contents)
  message(STATUS "Installing: ${installed_root}/${file}")
  file(WRITE "${installed_root}/${file}" "${contents}")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/${file}")
  set(CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_MANIFEST_FILES}" PARENT_SCOPE)
endfunction()

# answer(PROGRAM WORD... RESULT): what it prints; nothing, and a warning, if it cannot run here.
function(answer program result)
  execute_process(COMMAND "${program}" ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE complaint RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " words "${ARGN}")
    message(WARNING "No manual page or completion is installed: ${program} ${words} ended with ${status}. A program that "
                    "was built for another CPU prints them there.\n${complaint}")
    set(text "")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Open MPI is not started by them, but its library is loaded.
foreach(program ${PROGRAM_FILES})
  get_filename_component(name "${program}" NAME)
  answer("${program}" manual --man)
  answer("${program}" bash --completion bash)
  answer("${program}" zsh --completion zsh)
  if(manual STREQUAL "" OR bash STREQUAL "" OR zsh STREQUAL "")
    continue()
  endif()
  write_installed("${MAN_FOLDER}/man1/${name}.1" "${manual}")
  write_installed("${DATA_FOLDER}/bash-completion/completions/${name}" "${bash}")
  write_installed("${DATA_FOLDER}/zsh/site-functions/_${name}" "${zsh}")
  if(name STREQUAL "megatron_train")
    answer("${program}" manual --man=input)
    write_installed("${MAN_FOLDER}/man5/megatron_input.5" "${manual}")
  endif()
endforeach()

# The scripts have no options; their pages and the launcher's completion are files.
foreach(script megatron_launch megatron_demo)
  file(READ "${PACKAGING_FOLDER}/${script}.1" manual)
  string(REPLACE "@VERSION@" "${VERSION}" manual "${manual}")
  write_installed("${MAN_FOLDER}/man1/${script}.1" "${manual}")
endforeach()
file(READ "${PACKAGING_FOLDER}/megatron_launch.bash" bash)
write_installed("${DATA_FOLDER}/bash-completion/completions/megatron_launch" "${bash}")
file(READ "${PACKAGING_FOLDER}/megatron_launch.zsh" zsh)
write_installed("${DATA_FOLDER}/zsh/site-functions/_megatron_launch" "${zsh}")

file(READ "${PACKAGING_FOLDER}/modulefile.tcl" module)
foreach(word VERSION BIN_FOLDER DATA_FOLDER MAN_FOLDER CMAKE_INSTALL_PREFIX)
  string(REPLACE "@${word}@" "${${word}}" module "${module}")
endforeach()
write_installed("${DATA_FOLDER}/modulefiles/megatron_train/${VERSION}" "${module}")

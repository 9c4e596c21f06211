# Runs while installing: manual pages by help2man, and the module file with the prefix.
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

# Open MPI is not started by them, but its library is loaded.
find_program(help2man help2man NO_CACHE)
if(NOT help2man)
  message(STATUS "No manual pages of the programs are installed: help2man is not here")
  set(PROGRAM_FILES)
endif()
foreach(program ${PROGRAM_FILES})
  get_filename_component(name "${program}" NAME)
  execute_process(COMMAND ${help2man} --no-info --no-discard-stderr "--version-string=${name} ${VERSION}"
                          "--include=${PACKAGING_FOLDER}/manual/common.h2m"
                          "--opt-include=${PACKAGING_FOLDER}/manual/${name}.h2m" "${program}"
                  OUTPUT_VARIABLE manual ERROR_VARIABLE complaint RESULT_VARIABLE status)
  if(status EQUAL 0)
    write_installed("${MAN_FOLDER}/man1/${name}.1" "${manual}")
  else()
    message(WARNING "No manual page of ${name} is installed: help2man ended with ${status}. A program that was built for "
                    "another CPU cannot answer --help here.\n${complaint}")
  endif()
endforeach()

file(READ "${PACKAGING_FOLDER}/modulefile.tcl" module)
foreach(word VERSION BIN_FOLDER DATA_FOLDER MAN_FOLDER CMAKE_INSTALL_PREFIX)
  string(REPLACE "@${word}@" "${${word}}" module "${module}")
endforeach()
write_installed("${DATA_FOLDER}/modulefiles/megatron_train/${VERSION}" "${module}")

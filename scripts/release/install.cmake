# What `cmake --install`, `make install` and CPack install, for all of them alike. Included by the top level's
# CMakeLists.txt, with the list of programs in program_names.
#
# The tree may be moved as a whole: programs find the CUDA backend, and the demo its input file, relative to themselves.
include(GNUInstallDirs)
set(shared_folder ${CMAKE_INSTALL_DATADIR}/megatron_train)
set(own_libraries lib/megatron_train)  # where cuda/load_library.cpp looks: not GNUInstallDirs' folder, whose name varies

# Libraries that a site puts next to the programs are found first; then those of folders that were named for the build.
file(RELATIVE_PATH from_programs /${CMAKE_INSTALL_BINDIR} /${own_libraries})
set_target_properties(${program_names} PROPERTIES INSTALL_RPATH "$ORIGIN/${from_programs}" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${program_names} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(MEGATRON_CUDA)
  set_target_properties(megatron_cuda PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS megatron_cuda LIBRARY DESTINATION ${own_libraries})
endif()

install(PROGRAMS scripts/launch.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME megatron_launch)
install(PROGRAMS scripts/demo.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME megatron_demo)
install(PROGRAMS scripts/download_vocab.sh scripts/download_checkpoint.sh scripts/fetch_text.sh scripts/fetch_url.sh
        DESTINATION ${shared_folder}/scripts)
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${shared_folder})
install(DIRECTORY inputs docs DESTINATION ${shared_folder} FILES_MATCHING PATTERN "*.toml" PATTERN "*.md")
install(DIRECTORY slurm DESTINATION ${shared_folder} USE_SOURCE_PERMISSIONS
        FILES_MATCHING PATTERN "*.sbatch" PATTERN "*.sh" PATTERN "*.md")

# bash-completion looks for a file by the name of the command.
foreach(command ${program_names} megatron_launch)
  install(FILES scripts/release/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME ${command})
endforeach()
install(FILES scripts/release/manual/megatron_demo.1 scripts/release/manual/megatron_launch.1
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# Manual pages of every program in the list, from its --help, and the module file.
foreach(program ${program_names})
  list(APPEND program_files $<TARGET_FILE:${program}>)
endforeach()
install(CODE "
  set(PROGRAM_FILES \"${program_files}\")
  set(PACKAGING_FOLDER \"${CMAKE_SOURCE_DIR}/scripts/release\")
  set(VERSION \"${PROJECT_VERSION}\")
  set(BIN_FOLDER \"${CMAKE_INSTALL_BINDIR}\")
  set(DATA_FOLDER \"${CMAKE_INSTALL_DATADIR}\")
  set(MAN_FOLDER \"${CMAKE_INSTALL_MANDIR}\")")
install(SCRIPT scripts/release/install_generated.cmake)

# The Debian package by CPack, of the same files as `cmake --install`. Included by the top level's CMakeLists.txt.
set(MEGATRON_PACKAGE_CONTACT "megatron_train maintainers <megatron-train@example.org>" CACHE STRING
    "Maintainer of the package, as NAME <ADDRESS>: your site's")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME megatron-train)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${MEGATRON_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer of GPT, BERT and T5 models on MPI ranks")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Trains transformers split over tensor, pipeline, data and expert ranks, saves
checkpoints that any other split resumes, and plans memory and time of a run
before it starts. There is no Python in the training path.
.
The programs were built for ${MEGATRON_ARCH} and without the CUDA backend. On a
processor that lacks something of ${MEGATRON_ARCH} they say so and end with 2.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)       # the libraries that the programs are linked with
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin")  # mpirun, which megatron_launch calls
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion, rlwrap, slurm-client")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/scripts/release/debian_files.cmake)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
include(CPack)

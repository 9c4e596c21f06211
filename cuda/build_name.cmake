# Writes build_name.h: MEGATRON_BUILD_NAME, by which the CUDA backend's library and a program know that they are of one
# interface. It consists of the version and a hash of the headers that both are compiled with and of the compiler, since
# these say how classes lie in memory. Run by CMake whenever one of them has changed:
#
#   cmake -DVERSION=... -DCOMPILER=... -DSOURCE=folder -DHEADERS=a.h,b.h -DOUTPUT=file -P build_name.cmake
string(REPLACE "," ";" HEADERS "${HEADERS}")
set(text "${COMPILER}\n")
foreach(header ${HEADERS})
  file(SHA256 "${SOURCE}/${header}" hash)
  string(APPEND text "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING "${hash}" 0 12 hash)
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define MEGATRON_BUILD_NAME \"${VERSION}, interface ${hash}\"\n")

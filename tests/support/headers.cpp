// For which the headers that all tests include are compiled: precompiled() in CMakeLists.txt.
#include "support/catch.h"

# Flags, sanitizers and the functions that make a library, a plugin and a test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# What AddressSanitizer and UBSan add makes the optimiser slow (g++ 12: a third of the build at -O1), and what it would remove they
# could not look at. A fuzzer wants the speed.
if(SCRIPTORIUM_SANITIZE MATCHES "address" AND NOT SCRIPTORIUM_FUZZ)
  set(dev_optimisation -O0)
else()
  set(dev_optimisation -O1)
endif()
# FORCE: CMake has made an empty one for a build type that it does not know.
set(CMAKE_CXX_FLAGS_DEV "${dev_optimisation} -g1" CACHE STRING "Flags of the Dev build type" FORCE)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG" CACHE STRING "" FORCE)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # The same result for every clone of the same sources, wherever it lies.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT SCRIPTORIUM_FUZZ)
  # g++ 12 and clang both take -fuse-ld=mold.
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
                    -Wno-missing-field-initializers)  # designated initializers leave the rest at their defaults
# The whole source tree is one include path: "core/api/event.h" everywhere.
include_directories(${CMAKE_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(SCRIPTORIUM_WERROR)
  add_compile_options(-Werror)
endif()
if(SCRIPTORIUM_FAULTS)
  add_compile_definitions(SCRIPTORIUM_FAULTS)
endif()
if(SCRIPTORIUM_SANITIZE)
  add_compile_options(-fsanitize=${SCRIPTORIUM_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SCRIPTORIUM_SANITIZE})
  if(SCRIPTORIUM_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
    # A plugin's types are private to its library, so their vtables are not found from outside.
    add_compile_options(-fno-sanitize=vptr)
  endif()
else()
  add_compile_options(-fstack-protector-strong)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    add_compile_options(-D_FORTIFY_SOURCE=2)
  endif()
  add_link_options(-Wl,-z,relro,-z,now)
endif()
if(SCRIPTORIUM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

include(ScriptoriumPlugin)
include(ScriptoriumInstall)

# The hash that makes the build stamp one of these headers.
file(GLOB SCRIPTORIUM_API_HEADERS CONFIGURE_DEPENDS 
     "${CMAKE_SOURCE_DIR}/core/api/*.h" "${CMAKE_SOURCE_DIR}/core/api/kit/*.h" "${CMAKE_SOURCE_DIR}/core/base/*.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SCRIPTORIUM_API_HEADERS})
set(api_hashes "")
foreach(header IN LISTS SCRIPTORIUM_API_HEADERS)
  file(SHA256 "${header}" hash)
  string(APPEND api_hashes "${hash}")
endforeach()
string(SHA256 api_hash "${api_hashes}")
string(SUBSTRING "${api_hash}" 0 16 SCRIPTORIUM_API_HASH)
scriptorium_build_stamp(SCRIPTORIUM_BUILD_STAMP "${SCRIPTORIUM_API_HASH}")
if(SCRIPTORIUM_SANITIZE)
  string(APPEND SCRIPTORIUM_BUILD_STAMP "/${SCRIPTORIUM_SANITIZE}")
endif()
# Link this to whatever includes core/api/plugin.h.
add_library(scriptorium_stamp INTERFACE)
target_compile_definitions(scriptorium_stamp INTERFACE SCRIPTORIUM_BUILD_STAMP="${SCRIPTORIUM_BUILD_STAMP}")

# scriptorium_add_each(FOLDER): every subfolder with a CMakeLists.txt, so a new plugin only adds a folder.
function(scriptorium_add_each folder)
  file(GLOB children CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${folder}/*/CMakeLists.txt")
  foreach(child IN LISTS children)
    get_filename_component(directory "${child}" DIRECTORY)
    add_subdirectory("${directory}")
  endforeach()
endfunction()

# scriptorium_add_plugin(NAME [LIBRARIES lib...]): plugins/NAME.so from plugin.cc and a static library NAME_plugin from
# every other source of the folder, which the tests link. The module exports its descriptor and nothing else.
function(scriptorium_add_plugin name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  list(FILTER sources EXCLUDE REGEX "/plugin\\.cc$")
  if(sources)
    add_library(${name}_plugin STATIC ${sources})
    target_link_libraries(${name}_plugin PUBLIC scriptorium_api scriptorium_stamp PRIVATE ${ARG_LIBRARIES})
  else()
    add_library(${name}_plugin INTERFACE)
    target_link_libraries(${name}_plugin INTERFACE scriptorium_api scriptorium_stamp)
  endif()
  add_library(${name}_module MODULE plugin.cc)
  target_link_libraries(${name}_module PRIVATE ${name}_plugin ${ARG_LIBRARIES})
  scriptorium_plugin_module(${name}_module)
  if(NOT SCRIPTORIUM_SANITIZE)
    target_link_options(${name}_module PRIVATE -Wl,-z,defs)  # what is missing fails here, not in dlopen()
  endif()
  set_target_properties(${name}_module PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins")
  scriptorium_install_plugin(${name})
endfunction()

# Every folder is one or more libraries (xlad_<folder>) and their tests, declared by the functions below. The sources
# of a library are all *.cc in the folder of its CMakeLists.txt and in the given sub-folders, except *_test.cc,
# *_benchmark.cc and *_fuzz.cc.

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
                    -Wno-deprecated-declarations -fno-omit-frame-pointer -pthread)
option(XLAD_ASAN "AddressSanitizer and UBSan" OFF)
option(XLAD_TSAN "ThreadSanitizer" OFF)
if(XLAD_ASAN)
  # AddressSanitizer itself reports accesses through null and outside of objects, but not a reference to null that is
  # not used. The checks of vptr compare the dynamic type of each protobuf message with its static type. The three take
  # a third of the time to compile such sources.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-sanitize=null,object-size,vptr)
  add_link_options(-fsanitize=address,undefined)
elseif(XLAD_TSAN)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
  # Vector kernels are not compiled for AVX-512, which takes a third of their compile time: races do not depend on the
  # width of vectors. AddressSanitizer needs this code, because its blocks and tails differ from those for AVX2. Highway
  # never compiles code for its "broken targets".
  add_compile_definitions(HWY_BROKEN_TARGETS=HWY_AVX3)
endif()

# Two precompiled headers, one for all libraries and one for all tests. Clang requires the same flags for every user of
# a precompiled header, so executables are compiled with -fPIC too. The headers have no timestamps, so that ccache can
# share objects. It also needs the settings in CMakePresets.json to keep objects that were compiled with a precompiled
# header. CCACHE_DEPEND avoids a run of the preprocessor for each object that is not found.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "-fPIC")
# Tests are not optimized: they spend their time in the libraries, and compiling them without optimization takes half as
# long.
set(test_options -O0)
# The linker keeps one copy of an inline function that several objects contain: the first one. The objects of a program
# are therefore linked after the libraries, so that the optimized libraries do not call the tests' unoptimized copies.
# Linkers that search each library only once, as GNU ld does, need the other order.
if(CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld=(mold|lld)")
  set(CMAKE_CXX_LINK_EXECUTABLE "<CMAKE_CXX_COMPILER> <FLAGS> <CMAKE_CXX_LINK_FLAGS> <LINK_FLAGS> -o <TARGET> \
<LINK_LIBRARIES> <OBJECTS>")
  set(XLAD_LINKS_LIBRARIES_FIRST ON)  # For the test of this order.
endif()
set(pch_folder ${CMAKE_CURRENT_LIST_DIR})
function(xlad_precompiled_header name)
  add_library(${name} OBJECT ${pch_folder}/pch.cc)
  target_link_libraries(${name} PRIVATE spdlog::spdlog)
  target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
function(xlad_precompiled_headers)
  xlad_precompiled_header(xlad_pch ${pch_folder}/pch.h)
  xlad_precompiled_header(xlad_test_pch ${pch_folder}/pch.h <gtest/gtest.h> <gmock/gmock.h>)
  target_link_libraries(xlad_test_pch PRIVATE GTest::gmock)
  target_compile_options(xlad_test_pch PRIVATE ${test_options})
endfunction()

# xlad_library(NAME [FOLDERS sub1 sub2 ...] [DEPENDS targets...])
function(xlad_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;DEPENDS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  foreach(folder ${ARG_FOLDERS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "_(test|benchmark|fuzz)\\.cc$")
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
    target_precompile_headers(${name} REUSE_FROM xlad_pch)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_DEPENDS})
  endif()
endfunction()

# xlad_tests(NAME [FOLDERS ...] [DEPENDS ...] [ASAN_SHARDS n]): one test binary of all *_test.cc. The binary is one
# ctest test, so that only one process is started for it. Under AddressSanitizer, it is n ctest tests NAME_1 to NAME_n,
# each with a part of the cases, so that a long test uses more than one core.
function(xlad_tests name)
  cmake_parse_arguments(ARG "" "ASAN_SHARDS" "FOLDERS;DEPENDS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  foreach(folder ${ARG_FOLDERS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${test_options})
  target_precompile_headers(${name} REUSE_FROM xlad_test_pch)
  # CUDA_VISIBLE_DEVICES would hide GPUs of the test double of NVIDIA's driver.
  set(environment "CUDA_VISIBLE_DEVICES=unset:")
  if(XLAD_ASAN AND ARG_ASAN_SHARDS)
    foreach(shard RANGE 1 ${ARG_ASAN_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}_${shard} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
      set_tests_properties(${name}_${shard} PROPERTIES ENVIRONMENT_MODIFICATION
        "${environment};GTEST_TOTAL_SHARDS=set:${ARG_ASAN_SHARDS};GTEST_SHARD_INDEX=set:${index}")
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "${environment}")
  endif()
endfunction()

# xlad_benchmark(NAME SOURCES ... [DEPENDS ...]): a program of bench/. Unlike tests it is optimized, because it would
# otherwise spend measured time in its own code.
function(xlad_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  target_precompile_headers(${name} REUSE_FROM xlad_pch)
endfunction()

# xlad_plugin(NAME SOURCE [INCLUDES ...] [LIBRARIES ...]): a transport plugin (collectives/exec/transports/plugin/). It
# is built in the folder of the programs, which search for plugins there.
function(xlad_plugin name source)
  cmake_parse_arguments(ARG "" "" "INCLUDES;LIBRARIES" ${ARGN})
  set(target xlad_transport_${name})
  add_library(${target} MODULE ${source})
  target_include_directories(${target} SYSTEM PRIVATE ${ARG_INCLUDES})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                                             CXX_VISIBILITY_PRESET hidden)
endfunction()

# xlad_fuzz(NAME SOURCE [DEPENDS ...]): a libFuzzer target, with -DXLAD_FUZZ=ON (clang; best together with XLAD_ASAN).
option(XLAD_FUZZ "libFuzzer targets" OFF)
if(XLAD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
function(xlad_fuzz name source)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  if(XLAD_FUZZ)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  endif()
endfunction()

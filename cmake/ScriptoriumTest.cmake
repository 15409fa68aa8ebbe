# The functions that add a test: how ctest runs it, for how long, and when.

# The distribution's Python first: that one has the distribution's pytest.
find_program(SCRIPTORIUM_PYTHON python3 HINTS /usr/bin)
# Runs a file of pytest, where one of the Pythons has it.
set(SCRIPTORIUM_PYTEST "")
foreach(candidate ${SCRIPTORIUM_PYTHON} python3)
  execute_process(COMMAND ${candidate} -c "import pytest" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
  if(missing EQUAL 0)
    set(SCRIPTORIUM_PYTEST ${candidate} -B -m pytest -p no:cacheprovider -q -rs --tb=short)
    break()
  endif()
endforeach()

# scriptorium_add_command_test(NAME SECONDS [IN_MEMORY] COMMAND [ARGUMENT...]): a ctest test that may
# take so many seconds. One that takes longer hangs: watch-test prints the stacks of its threads and
# kills it. ctest's own TIMEOUT would only kill, so it comes later. IN_MEMORY: its temporary files are
# in memory.
function(scriptorium_add_command_test name seconds)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "IN_MEMORY" "" "")
  set(command ${ARG_UNPARSED_ARGUMENTS})
  if(SCRIPTORIUM_PYTHON)
    set(watch ${SCRIPTORIUM_PYTHON} -IS "${CMAKE_SOURCE_DIR}/tests/support/watch-test")
    if(ARG_IN_MEMORY)
      list(APPEND watch --in-memory)
    endif()
    list(PREPEND command ${watch} ${seconds})
  endif()
  add_test(NAME ${name} COMMAND ${command} COMMAND_EXPAND_LISTS)
  math(EXPR last "${seconds} + 180")  # the stacks are read meanwhile
  set_tests_properties(${name} PROPERTIES TIMEOUT ${last})
  scriptorium_schedule_test(${name})
endfunction()

# scriptorium_add_test(NAME SOURCES a.cc... [LIBRARIES lib...] [LABELS l...] [TIMEOUT seconds]): a
# GoogleTest program whose cases are run as one ctest test NAME (starting a process for each case would
# cost more than the cases).
function(scriptorium_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} scriptorium_test_support GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  scriptorium_add_command_test(${name} ${ARG_TIMEOUT} IN_MEMORY $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_LABELS}")
endfunction()

# scriptorium_schedule_test(NAME): how ctest places a test among the others, from what it takes
# (seconds alone on two cores, and how much of a core). The longest start first, so that none is left
# over at the end. Most of the time of most tests is waiting, so ctest is run with two places a core
# (./quickstart test), and a test that keeps a core busy takes two.
set(SCRIPTORIUM_LONG_TESTS
    packages=250 system_slurm_size=160 system_kafka_faults=146 system_opensearch_faults=126
    system_kafka=100 system_usage=96 system_memory=90 system_kafka_outage=80 system_usage_report=74
    system_torque=63 system_owners_later=60 system_crash=58 system_slurm_late=55
    system_operations=44 system_elasticsearch=44 kafka_sink_test=40 system_kafka_cluster=37
    system_capture_gaps=36 system_slurm=36 system_import=35 system_peer_killers=34
    system_usage_kafka_opensearch=30 system_sinks=30 system_faults=30 capture_test=30
    system_elasticsearch9=27 usage_test=26 system_opensearch=20 system_opensearch3=20
    system_opensearch_secure=20 system_slurm_owners=16 journal_power_cut_test=16
    system_privileges=15 system_plugin_crash=15 system_watch_test=15 system_capture_places=14
    system_capture_inotify=14 sink_contract_test=13 system_metrics=11)
set(SCRIPTORIUM_BUSY_TESTS "^(capture_test|system_(elasticsearch9?|opensearch3?|opensearch_secure|kafka_cluster|privileges|once))$")
function(scriptorium_schedule_test name)
  foreach(long IN LISTS SCRIPTORIUM_LONG_TESTS)
    if(long MATCHES "^${name}=(.*)$")
      set_tests_properties(${name} PROPERTIES COST ${CMAKE_MATCH_1})
    endif()
  endforeach()
  if(name MATCHES "${SCRIPTORIUM_BUSY_TESTS}")
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

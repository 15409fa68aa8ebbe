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

# ---- tiers ---------------------------------------------------------------------------------------
# Each test is in one of three tiers, by what it needs; docs/testing.md says which command runs which.
#   fast     (all that is not listed) only this tree's own programs, a made spool, and at most 15 s
#   servers  a real Slurm, Kafka, OpenSearch, Elasticsearch, database, web server or browser; one of them at a time
#   load     load, size, outages, power cuts, packages: what takes long or fills the machine
set(SCRIPTORIUM_SERVER_TESTS
    system_checkpoint system_checkpoint_criu system_checkpoint_images system_checkpoint_oar
    system_checkpoint_slurm system_preempt
    system_elasticsearch system_kafka
    system_kafka_cluster system_kafka_tickets system_mail
    system_mail_programs system_migrate system_opensearch
    system_opensearch_secure system_owners_later system_page_browser system_page_proxies system_run
    system_slurm system_slurm_late
    system_stalled_archive system_usage)
set(SCRIPTORIUM_LOAD_TESTS
    packages system_capture_gaps system_crash system_faults system_import
    system_kafka_faults system_memory system_opensearch_faults system_operations
    system_peer_killers system_privileges system_redact_restart system_sinks system_slurm_size
    system_torque system_usage_kafka_opensearch system_usage_sums)
# ctest has two places a core in the fast tier, since most tests mostly wait; these keep a core busy.
set(SCRIPTORIUM_BUSY_TESTS capture_test)

# scriptorium_add_command_test(NAME SECONDS [IN_MEMORY] LABELS label... COMMAND command...): a ctest
# test that may take so many seconds. One that takes longer hangs: watch-test prints the stacks of its
# threads and kills it. ctest's own TIMEOUT would only kill, so it comes later. IN_MEMORY: its temporary
# files are in memory. A label "gate" puts it into the servers tier, whatever its name: one short test
# against each kind of server, which .ci/run runs.
function(scriptorium_add_command_test name seconds)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "IN_MEMORY" "" "LABELS;COMMAND")
  set(command ${ARG_COMMAND})
  if(SCRIPTORIUM_PYTHON)
    set(watch ${SCRIPTORIUM_PYTHON} -IS "${CMAKE_SOURCE_DIR}/tests/support/watch-test")
    if(ARG_IN_MEMORY)
      list(APPEND watch --in-memory)
    endif()
    list(PREPEND command ${watch} ${seconds})
  endif()
  add_test(NAME ${name} COMMAND ${command} COMMAND_EXPAND_LISTS)
  set(tier fast)
  if(name IN_LIST SCRIPTORIUM_SERVER_TESTS OR "gate" IN_LIST ARG_LABELS)
    set(tier servers)
  elseif(name IN_LIST SCRIPTORIUM_LOAD_TESTS)
    set(tier load)
  endif()
  math(EXPR last "${seconds} + 180")  # the stacks are read meanwhile
  set_tests_properties(${name} PROPERTIES TIMEOUT ${last} LABELS "${tier};${ARG_LABELS}")
  if(NOT tier STREQUAL "fast")
    # A server, or a load, has the machine to itself.
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK server)
  elseif(name IN_LIST SCRIPTORIUM_BUSY_TESTS)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# All GoogleTest programs; a sanitizer's build needs nothing else for the tests with the label "unit".
add_custom_target(unit_tests)

# scriptorium_add_test(NAME SOURCES a.cc... [LIBRARIES lib...] [LABELS l...] [TIMEOUT seconds]): a
# GoogleTest program whose cases are run as one ctest test NAME (starting a process for each case would
# cost more than the cases).
function(scriptorium_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(unit_tests ${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} scriptorium_test_support GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  scriptorium_add_command_test(${name} ${ARG_TIMEOUT} IN_MEMORY LABELS unit ${ARG_LABELS} COMMAND $<TARGET_FILE:${name}>)
endfunction()

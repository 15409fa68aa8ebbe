# What `cmake --install` puts where. A component is a package: scriptorium (the command, its plugins that need no further
# library, documentation, unit), scriptorium-NAME for each plugin named here, scriptorium-web
# (the query service's units), scriptorium-checkpoint (the checkpoint service and the source of its records), scriptorium-dev (headers, library, CMake files).
# Nothing goes to /etc: the packages, or you, take the configuration from share/scriptorium/config.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME scriptorium)
set(SCRIPTORIUM_OWN_PACKAGE elasticsearch kafka usage CACHE STRING "Plugins that are packages of their own")
set(SCRIPTORIUM_UNIT_DIR lib/systemd/system CACHE STRING "Where below the prefix systemd's units go")

function(scriptorium_component out name)
  # The source checkpoint is in the package of the service whose records it takes.
  if(name IN_LIST SCRIPTORIUM_OWN_PACKAGE OR name STREQUAL "checkpoint")
    set(${out} scriptorium-${name} PARENT_SCOPE)
  else()
    set(${out} scriptorium PARENT_SCOPE)
  endif()
endfunction()

# scriptorium_install_plugin(NAME): the library, its README, its commented configuration, and what lies in the folders
# assets/ and templates/ beside it, for a destination that is set up by hand.
function(scriptorium_install_plugin name)
  scriptorium_component(component ${name})
  install(TARGETS ${name}_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/scriptorium/plugins COMPONENT ${component})
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/README.md")
    install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component}/plugins RENAME ${name}.md COMPONENT ${component})
  endif()
  file(GLOB config CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/plugins.d/[0-9][0-9]-${name}.toml")
  install(FILES ${config} DESTINATION ${CMAKE_INSTALL_DATADIR}/scriptorium/config/plugins.d COMPONENT ${component})
  foreach(folder assets templates)
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
      install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/scriptorium/${name} COMPONENT ${component}
              FILES_MATCHING PATTERN "*.json" PATTERN "*.ndjson")
    endif()
  endforeach()
endfunction()

# scriptorium_install_unit(FILE COMPONENT [FOLDER]): a unit, or a drop-in, whose command lies where this installation puts it.
function(scriptorium_install_unit file component)
  get_filename_component(name "${file}" NAME)
  set(folder "${SCRIPTORIUM_UNIT_DIR}")
  if(ARGN)
    set(folder "${ARGN}")
  endif()
  install(CODE "
    file(READ \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\" unit)
    string(REPLACE \"/usr/bin/scriptorium\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/scriptorium\" unit \"\${unit}\")
    file(WRITE \"${CMAKE_BINARY_DIR}/units/${name}\" \"\${unit}\")
    file(INSTALL \"${CMAKE_BINARY_DIR}/units/${name}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\")"
    COMPONENT ${component})
endfunction()

# What belongs to no single part: called once, from the top.
function(scriptorium_install_rest)
  set(share ${CMAKE_INSTALL_DATADIR}/scriptorium)
  set(doc ${CMAKE_INSTALL_DATADIR}/doc)

  install(FILES packaging/scriptorium.toml DESTINATION ${share}/config)
  install(DIRECTORY redact.d DESTINATION ${share}/config FILES_MATCHING PATTERN "*.toml")
  # For reading: the command has them built in. A site changes them in /etc/scriptorium/mail.
  install(DIRECTORY core/mail/texts/ DESTINATION ${share}/mail FILES_MATCHING PATTERN "*.toml")
  install(DIRECTORY packaging/monitoring DESTINATION ${share} FILES_MATCHING PATTERN "*.yml" PATTERN "*.json")
  install(DIRECTORY docs/ DESTINATION ${doc}/scriptorium
          FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.png" PATTERN "docs/testing.md" EXCLUDE)
  install(FILES README.md CHANGELOG.md DESTINATION ${doc}/scriptorium)
  scriptorium_install_unit(packaging/systemd/scriptorium.service scriptorium)
  scriptorium_install_unit(packaging/systemd/scriptorium-mail.service scriptorium)
  scriptorium_install_unit(packaging/systemd/scriptorium-mail.timer scriptorium)
  scriptorium_install_unit(packaging/systemd/inotify.conf scriptorium ${share}/systemd)
  install(FILES packaging/systemd/scriptorium.sysusers DESTINATION lib/sysusers.d RENAME scriptorium.conf)
  foreach(unit scriptorium-web.service scriptorium-web.socket scriptorium-page.socket)
    scriptorium_install_unit(packaging/systemd/${unit} scriptorium-web)
  endforeach()
  install(FILES packaging/web/apache-basic.conf packaging/web/apache-openidc.conf packaging/web/nginx.conf
          DESTINATION ${doc}/scriptorium-web COMPONENT scriptorium-web)
  install(FILES packaging/systemd/scriptorium-web.sysusers DESTINATION lib/sysusers.d RENAME scriptorium-web.conf
          COMPONENT scriptorium-web)
  install(TARGETS scriptorium-checkpointd scriptorium-run scriptorium-migrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT scriptorium-checkpoint)
  scriptorium_install_unit(packaging/systemd/scriptorium-checkpointd.service scriptorium-checkpoint)
  scriptorium_install_unit(packaging/systemd/checkpoint.conf scriptorium-checkpoint ${share}/systemd)
  install(FILES packaging/checkpoint.toml DESTINATION ${share}/config COMPONENT scriptorium-checkpoint)
  install(FILES packaging/man/scriptorium-checkpointd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8
          COMPONENT scriptorium-checkpoint)
  install(FILES checkpoint/app/scriptorium_app.h checkpoint/app/scriptorium_app.py
          DESTINATION ${share}/checkpoint COMPONENT scriptorium-checkpoint)
  install(DIRECTORY checkpoint/slurm DESTINATION ${share}/checkpoint COMPONENT scriptorium-checkpoint)
  install(FILES packaging/man/scriptorium-migrate.1 packaging/man/scriptorium-run.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          COMPONENT scriptorium-checkpoint)
  install(FILES docs/checkpoint.md docs/long-jobs.md docs/move-jobs.md docs/preempt.md
          DESTINATION ${doc}/scriptorium-checkpoint COMPONENT scriptorium-checkpoint)
  if(TARGET usage_module)
    scriptorium_install_unit(packaging/systemd/usage.conf scriptorium-usage ${share}/systemd)
    scriptorium_install_unit(packaging/systemd/usage-programs.conf scriptorium-usage ${share}/systemd)
    install(FILES examples/usage-in-a-job.sbatch DESTINATION ${doc}/scriptorium-usage/examples
            COMPONENT scriptorium-usage)
  endif()

  # For plugins that are built elsewhere.
  install(TARGETS scriptorium_api ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT scriptorium-dev)
  foreach(folder api base)
    install(DIRECTORY core/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/scriptorium/core COMPONENT scriptorium-dev
            FILES_MATCHING PATTERN "*.h")
  endforeach()
  include(CMakePackageConfigHelpers)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Scriptorium)
  configure_package_config_file(cmake/ScriptoriumConfig.cmake.in "${CMAKE_BINARY_DIR}/ScriptoriumConfig.cmake"
                                INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/ScriptoriumConfigVersion.cmake" COMPATIBILITY ExactVersion)
  install(FILES "${CMAKE_BINARY_DIR}/ScriptoriumConfig.cmake" "${CMAKE_BINARY_DIR}/ScriptoriumConfigVersion.cmake"
                cmake/ScriptoriumPlugin.cmake cmake/plugin.map
          DESTINATION ${package} COMPONENT scriptorium-dev)
  install(DIRECTORY examples/plugins DESTINATION ${doc}/scriptorium-dev/examples COMPONENT scriptorium-dev)
endfunction()

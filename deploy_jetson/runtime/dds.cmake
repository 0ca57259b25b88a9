# CycloneDDS, if its headers and its IDL compiler are found (Debian: cyclonedds-dev, cyclonedds-tools). The types are
# generated without type information (-t): that of another version of the library crashes the peer.
set(ROBOT_RL_DDS AUTO CACHE STRING "CycloneDDS: AUTO, ON or OFF")
if(ROBOT_RL_DDS STREQUAL "ON" OR (ROBOT_RL_DDS STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING))
  find_package(CycloneDDS QUIET)
  find_program(ROBOT_RL_IDLC idlc)
  if(CycloneDDS_FOUND AND ROBOT_RL_IDLC)
    enable_language(C)
    set(GENERATED ${CMAKE_BINARY_DIR}/idl)
    file(MAKE_DIRECTORY ${GENERATED})
    set(GENERATED_SOURCES)
    foreach(family unitree_go unitree_hg robot_rl)
      add_custom_command(OUTPUT ${GENERATED}/${family}.c ${GENERATED}/${family}.h
        COMMAND ${ROBOT_RL_IDLC} -t -Wno-implicit-extensibility -o ${GENERATED} ${CMAKE_CURRENT_LIST_DIR}/idl/${family}.idl
        DEPENDS ${CMAKE_CURRENT_LIST_DIR}/idl/${family}.idl VERBATIM)
      list(APPEND GENERATED_SOURCES ${GENERATED}/${family}.c ${GENERATED}/${family}.h)
    endforeach()
    file(GLOB DDS_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/src/dds_*.cpp)
    add_library(robot_rl_idl STATIC ${GENERATED_SOURCES})  # C, apart from the core's C++ options
    target_link_libraries(robot_rl_idl PUBLIC CycloneDDS::ddsc)
    target_sources(robot_rl_core PRIVATE ${DDS_SOURCES})
    add_dependencies(robot_rl_core robot_rl_idl)  # its headers
    target_include_directories(robot_rl_core PRIVATE ${GENERATED})
    target_compile_definitions(robot_rl_core PRIVATE ROBOT_RL_DDS)
    target_link_libraries(robot_rl_core PUBLIC robot_rl_idl)
    message(STATUS "DDS: CycloneDDS ${CycloneDDS_VERSION}")
  elseif(ROBOT_RL_DDS STREQUAL "ON")
    message(FATAL_ERROR "ROBOT_RL_DDS=ON, but CycloneDDS or idlc is not found: apt install cyclonedds-dev cyclonedds-tools")
  else()
    message(STATUS "DDS: left out, cyclonedds-dev or cyclonedds-tools is not here")
  endif()
endif()

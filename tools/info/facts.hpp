#pragma once
// What `tamaki info` knows, as lists of facts; each probe says why something is not there.

#include <string>
#include <vector>

namespace tamaki::tools {

struct Fact {
  std::string name, value;
};
struct Section {
  std::string name;
  std::vector<Fact> facts;
};

Section build_section();     // version, compiler, kernels
Section machine_section();   // host, cores, NUMA, caches, memory
Section memory_section();    // shared memory, huge pages, access to other processes
Section network_section();   // interfaces, verbs
Section mpi_section();       // MPI libraries and the preload libraries
Section transport_section(); // each one opened, with its facts or the reason why not
Section algorithm_section();
Section job_section();       // what launcher this process finds itself under

/// First line of a file, "" where it cannot be read.
std::string first_line(const std::string& path);

}  // namespace tamaki::tools

#include <cstdio>

int main() {
  std::puts("robot-rl-infer: not built yet");
  return 2;
}

// A sound library that is no plugin.
extern "C" __attribute__((visibility("default"))) int scriptorium_has_no_descriptor() { return 1; }

// Folders with Reigen's plug-ins. A source that has such a path as a macro is compiled anew in every checkout, so only
// plugin_folders.cc has them.
#pragma once

namespace reigen::device {

extern const char* const kBuildPluginFolder;      // where this build writes them
extern const char* const kInstalledPluginFolder;  // where an installation of this build has them

}  // namespace reigen::device

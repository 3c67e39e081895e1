#include "device/plugin_folders.h"

namespace reigen::device {

const char* const kBuildPluginFolder = REIGEN_PLUGIN_FOLDER;
const char* const kInstalledPluginFolder = REIGEN_INSTALLED_FOLDER;

}  // namespace reigen::device

"""Cards of this machine: found by NVML, ROCm sysfs and Vulkan, else the CPU."""

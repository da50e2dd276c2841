"""What has to happen, as data: pure planners, and the executor that runs a plan."""

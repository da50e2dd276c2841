"""The Prefect child: flow-run server, its UI, and the recorder of runs, in a process of its own."""

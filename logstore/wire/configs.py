"""The APIs of configurations: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

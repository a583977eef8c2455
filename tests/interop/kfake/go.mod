module github.com/twmb/franz-go/pkg/kfake

go 1.25.0

require github.com/twmb/franz-go/pkg/kmsg v1.15.0

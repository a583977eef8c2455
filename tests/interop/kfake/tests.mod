module suite

go 1.25.0

replace github.com/twmb/franz-go/pkg/kfake => ./kfake

require (
	github.com/twmb/franz-go v1.22.2
	github.com/twmb/franz-go/pkg/kadm v1.19.0
	github.com/twmb/franz-go/pkg/kfake v0.0.0
	github.com/twmb/franz-go/pkg/kmsg v1.15.0
)

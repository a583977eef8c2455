// Command kfake serves franz-go's fake cluster until end of file on its standard input. It prints
// the address, and then the time in milliseconds that the cluster took to start in this process.
// Arguments are broker configurations, KEY=VALUE.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	configs := map[string]string{}
	for _, pair := range os.Args[1:] {
		key, value, _ := strings.Cut(pair, "=")
		configs[key] = value
	}
	began := time.Now()
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.BrokerConfigs(configs),
	)
	took := time.Since(began)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	fmt.Println(float64(took.Microseconds()) / 1000)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

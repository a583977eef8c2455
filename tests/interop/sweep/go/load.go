package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const loaded = 3 // partitions

// load writes to each partition of a topic until its input ends, and prints what was acknowledged,
// as tests/interop/loads.py does.
func load(topic string) error {
	cl, err := client(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AlwaysRetryEOF())
	if err != nil {
		return err
	}
	defer cl.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		close(ended)
	}()
	var mutex sync.Mutex
	report := func(record *kgo.Record, err error) {
		line := []any{topic, record.Partition, record.Offset, nil, string(record.Value)}
		if err != nil {
			line = []any{"failed", err.Error()}
		}
		text, _ := json.Marshal(line)
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Println(string(text))
	}
	for number := 0; ; number++ {
		select {
		case <-ended:
			return cl.Flush(context.Background())
		case <-time.After(10 * time.Millisecond):
		}
		value := fmt.Sprintf("franz-go:%d:%s", number, strings.Repeat("x", number*7%200))
		for partition := range int32(loaded) {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
			cl.Produce(context.Background(), record, report)
		}
	}
}

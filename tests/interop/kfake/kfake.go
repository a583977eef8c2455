// Package kfake stands in for franz-go's kfake: a cluster is a process of `logstore serve`.
package kfake

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type config struct {
	brokers  int
	topics   []string
	settings map[string]string
}

// Opt is an option of NewCluster.
type Opt func(*config)

// NumBrokers sets the number of brokers.
func NumBrokers(n int) Opt { return func(c *config) { c.brokers = n } }

// SeedTopics creates topics.
func SeedTopics(partitions int32, topics ...string) Opt {
	return func(c *config) {
		for _, topic := range topics {
			c.topics = append(c.topics, fmt.Sprintf("%s:%d", topic, max(partitions, 1)))
		}
	}
}

// BrokerConfigs sets broker settings.
func BrokerConfigs(settings map[string]string) Opt {
	return func(c *config) {
		for key, value := range settings {
			c.settings[key] = value
		}
	}
}

// Cluster is a running process.
type Cluster struct {
	process   *exec.Cmd
	addresses []string
}

// NewCluster starts a cluster; the environment variable LOGSTORE names the command.
func NewCluster(opts ...Opt) (*Cluster, error) {
	c := &config{brokers: 1, settings: map[string]string{
		"group.consumer.min.heartbeat.interval.ms": "1",
		"group.consumer.min.session.timeout.ms":    "1",
		"group.min.session.timeout.ms":             "1",
		"offsets.topic.num.partitions":             "1",
		"transaction.state.log.num.partitions":     "1",
	}}
	for _, opt := range opts {
		opt(c)
	}
	file, err := os.CreateTemp("", "*.properties")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	for key, value := range c.settings {
		fmt.Fprintf(file, "%s=%s\n", key, value)
	}
	file.Close()
	args := []string{"--config-file", file.Name(), "serve", "--memory", "--listen", "127.0.0.1:0",
		"--brokers", fmt.Sprint(c.brokers)}
	for _, topic := range c.topics {
		args = append(args, "--topic", topic)
	}
	process := exec.Command(os.Getenv("LOGSTORE"), args...)
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, err
	}
	return &Cluster{process, strings.Split(strings.TrimSpace(line), ",")}, nil
}

// ListenAddrs returns the addresses of the brokers.
func (c *Cluster) ListenAddrs() []string { return c.addresses }

// Close ends the process.
func (c *Cluster) Close() {
	_ = c.process.Process.Signal(syscall.SIGTERM)
	_ = c.process.Wait()
}

// ControlKey would replace responses inside the broker, which another process cannot.
func (c *Cluster) ControlKey(int16, func(kmsg.Request) (kmsg.Response, error, bool)) {
	panic("responses of logstore cannot be replaced from here")
}

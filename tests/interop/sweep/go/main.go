// Command sweep does the actions of tests/support/interop/sweep.py through franz-go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	within = time.Minute
	poll   = 100 * time.Millisecond
)

type seen map[string]any

var bootstrap = os.Args[1]

func main() {
	if len(os.Args) > 3 && os.Args[2] == "load" {
		if err := load(os.Args[3]); err != nil {
			panic(err)
		}
		return
	}
	for _, action := range []struct {
		name string
		work func(context.Context) (seen, error)
	}{
		{"produce", produce},
		{"idempotent", idempotent},
		{"transaction", transaction},
		{"group", group},
		{"rebalance", rebalance},
		{"delete_records", deleteRecords},
		{"configs", configs},
		{"acls", acls},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		found, err := action.work(ctx)
		cancel()
		line := map[string]any{"action": action.name, "seen": found}
		if err != nil {
			line = map[string]any{"action": action.name, "failed": err.Error()}
		}
		text, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond),
	}, options...)...)
}

func records(topic string, values ...string) []*kgo.Record {
	made := make([]*kgo.Record, 0, len(values))
	for _, value := range values {
		made = append(made, &kgo.Record{
			Topic:   topic,
			Key:     []byte("k"),
			Value:   []byte(value),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}},
		})
	}
	return made
}

func numbers(prefix string, count int) []string {
	made := make([]string, count)
	for number := range made {
		made[number] = prefix + strconv.Itoa(number)
	}
	return made
}

func produce(ctx context.Context) (seen, error) {
	cl, err := client(
		kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(kgo.GzipCompression()),
	)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	values := numbers("", 100)
	for number, value := range values {
		values[number] = fmt.Sprintf("%-100s", value) // each alone is worth to be compressed
	}
	sent := cl.ProduceSync(ctx, records("written", values...)...)
	return seen{"first": sent[0].Record.Offset}, sent.FirstErr()
}

func idempotent(ctx context.Context) (seen, error) {
	cl, err := client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for _, number := range numbers("", 20) {
		if err := cl.ProduceSync(ctx, records("once", number)...).FirstErr(); err != nil {
			return nil, err
		}
	}
	return seen{}, nil
}

func transaction(ctx context.Context) (seen, error) {
	cl, err := client(kgo.TransactionalID("booking-1"))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for _, each := range []struct {
		values  []string
		offset  int64
		outcome kgo.TransactionEndTry
	}{
		{numbers("c", 10), 7, kgo.TryCommit},
		{numbers("a", 10), 0, kgo.TryAbort},
		{[]string{"d0"}, 0, kgo.TryCommit},
	} {
		if err := cl.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := cl.ProduceSync(ctx, records("booked", each.values...)...).FirstErr(); err != nil {
			return nil, err
		}
		if each.offset > 0 {
			if err := bookOffset(ctx, cl, each.offset); err != nil {
				return nil, err
			}
		}
		if err := cl.EndTransaction(ctx, each.outcome); err != nil {
			return nil, err
		}
	}
	reader, err := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		"booked": {0: kgo.NewOffset().AtStart()},
	}))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var read []string
	err = until(ctx, func() bool { return slices.Contains(read, "d0") }, func() error {
		found, err := values(ctx, reader)
		read = append(read, found...)
		return err
	})
	return seen{"read": read}, err
}

// bookOffset takes an offset of a group into the transaction of a client, which franz-go does by
// itself only for a session that consumes.
func bookOffset(ctx context.Context, cl *kgo.Client, offset int64) error {
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = "booking-1", id, epoch
	add.Group = "booking"
	added, err := add.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = "transfers"
	topic.Partitions = append(topic.Partitions, partition)
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = "booking-1", id, epoch
	commit.Group, commit.Topics = "booking", append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if code := committed.Topics[0].Partitions[0].ErrorCode; added.ErrorCode != 0 || code != 0 {
		return fmt.Errorf("AddOffsetsToTxn: %d, TxnOffsetCommit: %d", added.ErrorCode, code)
	}
	return nil
}

func until(ctx context.Context, isSo func() bool, step func() error) error {
	for !isSo() {
		if ctx.Err() != nil {
			return errors.New("it does not come about")
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func values(ctx context.Context, cl *kgo.Client) ([]string, error) {
	turn, cancel := context.WithTimeout(ctx, poll)
	defer cancel()
	var found []string
	fetches := cl.PollFetches(turn)
	fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, each.Err
		}
	}
	return found, nil
}

func group(ctx context.Context) (seen, error) {
	cl, err := client(member("readers")...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var read []string
	err = until(ctx, func() bool { return len(read) >= 100 }, func() error {
		found, err := values(ctx, cl)
		read = append(read, found...)
		return err
	})
	if err == nil {
		err = cl.CommitUncommittedOffsets(ctx)
	}
	slices.Sort(read)
	return seen{"read": read}, err
}

func member(group string, options ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics("events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200 * time.Millisecond),
	}, options...)
}

// assigned counts the partitions of a member, which hears of them in other goroutines.
type assigned struct {
	mutex sync.Mutex
	count int
}

func (a *assigned) add(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		a.count += sign * len(partitions["events"])
	}
}

func (a *assigned) size() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.count
}

func (a *assigned) member() (*kgo.Client, error) {
	return client(member("pair",
		kgo.OnPartitionsAssigned(a.add(1)),
		kgo.OnPartitionsRevoked(a.add(-1)),
		kgo.OnPartitionsLost(a.add(-1)),
	)...)
}

func rebalance(ctx context.Context) (seen, error) {
	var first, second assigned
	var sizes [][]int
	one, err := first.member()
	if err != nil {
		return nil, err
	}
	defer one.Close()
	step := func() error { _, err := values(ctx, one); return err }
	if err := until(ctx, func() bool { return first.size() == 4 }, step); err != nil {
		return nil, err
	}
	sizes = append(sizes, []int{first.size()})
	two, err := second.member()
	if err != nil {
		return nil, err
	}
	both := func() error {
		_, err := values(ctx, two)
		return errors.Join(step(), err)
	}
	err = until(ctx, func() bool { return first.size() == 2 && second.size() == 2 }, both)
	sizes = append(sizes, []int{first.size(), second.size()})
	two.Close()
	if err != nil {
		return nil, err
	}
	err = until(ctx, func() bool { return first.size() == 4 }, step)
	return seen{"sizes": append(sizes, []int{first.size()})}, err
}

func admin() (*kadm.Client, error) {
	cl, err := client()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

func deleteRecords(ctx context.Context) (seen, error) {
	adm, err := admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset("old", 0, 12, -1)
	deleted, err := adm.DeleteRecords(ctx, offsets)
	if err != nil {
		return nil, err
	}
	if err := deleted.Error(); err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, "old")
	if err != nil {
		return nil, err
	}
	start, _ := starts.Lookup("old", 0)
	low, _ := deleted.Lookup("old", 0)
	return seen{"low": low.LowWatermark, "earliest": start.Offset}, starts.Error()
}

func configs(ctx context.Context) (seen, error) {
	adm, err := admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	before, err := retention(ctx, adm)
	if err != nil {
		return nil, err
	}
	wanted := "12345"
	changed, err := adm.AlterTopicConfigs(
		ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &wanted}}, "configured",
	)
	if err != nil {
		return nil, err
	}
	if err := changed[0].Err; err != nil {
		return nil, err
	}
	after, err := retention(ctx, adm)
	return seen{"before": before, "after": after}, err
}

func retention(ctx context.Context, adm *kadm.Client) (string, error) {
	found, err := adm.DescribeTopicConfigs(ctx, "configured")
	if err != nil {
		return "", err
	}
	topic, err := found.On("configured", nil)
	if err != nil {
		return "", err
	}
	for _, entry := range topic.Configs {
		if entry.Key == "retention.ms" {
			return entry.MaybeValue(), nil
		}
	}
	return "", errors.New("there is no retention.ms")
}

func acls(ctx context.Context) (seen, error) {
	adm, err := admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	allowing := func(who string, operation kadm.ACLOperation) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics("orders-").ResourcePatternType(kadm.ACLPatternPrefixed).
			Allow(who).AllowHosts().Operations(operation)
	}
	matching := func(who ...string) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics("orders-").ResourcePatternType(kadm.ACLPatternPrefixed).
			Allow(who...).AllowHosts().Operations()
	}
	for _, each := range []*kadm.ACLBuilder{
		allowing("User:ann", kadm.OpRead), allowing("User:bob", kadm.OpWrite),
	} {
		results, err := adm.CreateACLs(ctx, each)
		if err != nil {
			return nil, err
		}
		if err := results[0].Err; err != nil {
			return nil, err
		}
	}
	principals := func() ([]string, error) {
		results, err := adm.DescribeACLs(ctx, matching())
		found := []string{}
		for _, result := range results {
			err = errors.Join(err, result.Err)
			for _, acl := range result.Described {
				found = append(found, acl.Principal)
			}
		}
		slices.Sort(found)
		return found, err
	}
	created, err := principals()
	if err != nil {
		return nil, err
	}
	deleted, err := adm.DeleteACLs(ctx, matching("User:bob"))
	if err != nil {
		return nil, err
	}
	if err := deleted[0].Err; err != nil {
		return nil, err
	}
	left, err := principals()
	return seen{"created": created, "left": left}, err
}

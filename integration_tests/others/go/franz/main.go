// franz-go against a broker: franz BOOTSTRAP TOPIC RECORDS REPLICAS. Prints one JSON object of what it saw.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type codec struct {
	name  string
	codec kgo.CompressionCodec
}

var codecs = []codec{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func seeds(bootstrap string) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, seeds(bootstrap))...)
	check(err)
	return made
}

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	replicas, err := strconv.Atoi(os.Args[4])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	plain := client(bootstrap)
	defer plain.Close()
	admin := kadm.NewClient(plain)
	_, err = admin.CreateTopic(ctx, 2, int16(replicas), nil, topic)
	check(err)
	topics, err := admin.ListTopics(ctx)
	check(err)

	names := []string{}
	for _, each := range codecs {
		names = append(names, each.name)
		producer := client(bootstrap, kgo.ProducerBatchCompression(each.codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for n := 0; n < count; n++ {
			producer.Produce(ctx, &kgo.Record{
				Topic: topic, Partition: int32(n % 2), Key: []byte(strconv.Itoa(n)),
				Value:   []byte(fmt.Sprintf("%s %d", each.name, n)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(each.name)}},
			}, func(_ *kgo.Record, err error) { check(err) })
		}
		check(producer.Flush(ctx))
		producer.Close()
	}

	group := topic + "-readers"
	values := []string{}
	consumer := client(bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(values) < count*len(codecs) {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
		check(consumer.CommitUncommittedOffsets(ctx))
	}
	check(consumer.LeaveGroupContext(ctx))
	consumer.Close()

	var committed int64
	offsets, err := admin.FetchOffsets(ctx, group)
	check(err)
	offsets.Each(func(each kadm.OffsetResponse) { committed += each.At })
	transacted, offset := transact(ctx, admin, bootstrap, topic+"-transacted", topic, count, int16(replicas))
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"codecs": names, "listed": topics.Has(topic), "values": values, "committed": committed,
		"transacted": transacted, "transacted_offset": offset,
	}))
}

// transact writes a value for each record of a part of a topic to another one, in two transactions of which one is
// aborted, with its offsets; gives what a reader of committed records sees, and the offset of the copying group.
func transact(ctx context.Context, admin *kadm.Client, bootstrap, target, source string, count int,
	replicas int16) ([]string, int64) {
	_, err := admin.CreateTopic(ctx, 1, replicas, nil, target)
	check(err)
	group := target + "-copiers"
	session, err := kgo.NewGroupTransactSession(seeds(bootstrap), kgo.TransactionalID(group),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		for copied := 0; copied < count; {
			fetches := session.PollRecords(ctx, count-copied)
			check(fetches.Err())
			check(session.Begin())
			fetches.EachRecord(func(*kgo.Record) {
				value := fmt.Sprintf("%v %d", bool(end), copied)
				copied++
				session.Produce(ctx, &kgo.Record{Topic: target, Value: []byte(value)},
					func(_ *kgo.Record, err error) { check(err) })
			})
			check(session.Client().Flush(ctx))
			_, err := session.End(ctx, end)
			check(err)
		}
	}
	session.Close()
	reader := client(bootstrap, kgo.ConsumeTopics(target), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	found := []string{}
	for len(found) < count {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	var at int64
	offsets, err := admin.FetchOffsets(ctx, group)
	check(err)
	offsets.Each(func(each kadm.OffsetResponse) { at += max(each.At, 0) })
	return found, at
}

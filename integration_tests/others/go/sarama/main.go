// Sarama against a broker: sarama BOOTSTRAP TOPIC RECORDS REPLICAS. Prints one JSON object of what it saw.
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

	"github.com/IBM/sarama"
)

type codec struct {
	name  string
	codec sarama.CompressionCodec
}

var codecs = []codec{
	{"none", sarama.CompressionNone},
	{"gzip", sarama.CompressionGZIP},
	{"snappy", sarama.CompressionSnappy},
	{"lz4", sarama.CompressionLZ4},
	{"zstd", sarama.CompressionZSTD},
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

// reader is a member of the group until it has seen all records.
type reader struct {
	total  int
	values chan string
	end    context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			session.MarkMessage(message, "read")
			r.values <- string(message.Value)
			if len(r.values) == r.total { // of both partitions, each marked before it was counted
				session.Commit()
				r.end()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	bootstrap, topic := strings.Split(os.Args[1], ","), os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	replicas, err := strconv.Atoi(os.Args[4])
	check(err)
	admin, err := sarama.NewClusterAdmin(bootstrap, config())
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: int16(replicas)}, false))
	topics, err := admin.ListTopics()
	check(err)
	_, listed := topics[topic]

	names := []string{}
	for _, each := range codecs {
		names = append(names, each.name)
		options := config()
		options.Producer.Compression = each.codec
		producer, err := sarama.NewSyncProducer(bootstrap, options)
		check(err)
		messages := []*sarama.ProducerMessage{}
		for n := 0; n < count; n++ {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(n % 2), Key: sarama.StringEncoder(strconv.Itoa(n)),
				Value:   sarama.StringEncoder(fmt.Sprintf("%s %d", each.name, n)),
				Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(each.name)}},
			})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}

	total := count * len(codecs)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	member := &reader{total: total, values: make(chan string, total), end: cancel}
	group, err := sarama.NewConsumerGroup(bootstrap, topic+"-readers", config())
	check(err)
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{topic}, member))
	}
	check(group.Close())
	close(member.values)
	values := []string{}
	for value := range member.values {
		values = append(values, value)
	}

	var committed int64
	offsets, err := admin.ListConsumerGroupOffsets(topic+"-readers", map[string][]int32{topic: {0, 1}})
	check(err)
	for _, block := range offsets.Blocks[topic] {
		committed += block.Offset
	}
	transacted, offset := transact(admin, bootstrap, topic+"-transacted", topic, count, int16(replicas))
	check(admin.Close())
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"codecs": names, "listed": listed, "values": values, "committed": committed,
		"transacted": transacted, "transacted_offset": offset,
	}))
}

// transact writes count values and an offset of a group in each of two transactions, the first of which is aborted;
// gives what a reader of committed records sees, and the offset.
func transact(admin sarama.ClusterAdmin, bootstrap []string, target, source string, count int,
	replicas int16) ([]string, int64) {
	check(admin.CreateTopic(target, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: replicas}, false))
	group := target + "-copiers"
	options := config()
	options.Producer.Transaction.ID = group
	options.Consumer.IsolationLevel = sarama.ReadCommitted
	producer, err := sarama.NewSyncProducer(bootstrap, options)
	check(err)
	for _, commits := range []bool{false, true} {
		check(producer.BeginTxn())
		for n := 0; n < count; n++ {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic: target, Value: sarama.StringEncoder(fmt.Sprintf("%v %d", commits, n)),
			})
			check(err)
		}
		at := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: int64(count)}
		check(producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{source: {at}}, group))
		if commits {
			check(producer.CommitTxn())
		} else {
			check(producer.AbortTxn())
		}
	}
	check(producer.Close())
	consumer, err := sarama.NewConsumer(bootstrap, options)
	check(err)
	partition, err := consumer.ConsumePartition(target, 0, sarama.OffsetOldest)
	check(err)
	found := []string{}
	for len(found) < count {
		found = append(found, string((<-partition.Messages()).Value))
	}
	check(partition.Close())
	check(consumer.Close())
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{source: {0}})
	check(err)
	return found, offsets.Blocks[source][0].Offset
}

// A member of a consumer group by the protocol of KIP-848, as a process: member BOOTSTRAP GROUP TOPIC.
//
// It commits what it has read after it has said so, and prints a JSON line an event, in the words of Kafka's
// VerifiableConsumer. It leaves its group on SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func say(event map[string]any) {
	event["timestamp"] = time.Now().UnixMilli()
	if err := json.NewEncoder(os.Stdout).Encode(event); err != nil {
		log.Fatal(err)
	}
}

func partitions(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		named := []map[string]any{}
		for topic, numbers := range topics {
			for _, number := range numbers {
				named = append(named, map[string]any{"topic": topic, "partition": number})
			}
		}
		say(map[string]any{"name": name, "partitions": named})
	}
}

func main() {
	bootstrap, group, topic := os.Args[1], os.Args[2], os.Args[3]
	// The library has its users ask for the protocol by this name.
	asked := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	client, err := kgo.NewClient(kgo.WithContext(asked), kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.StickyBalancer()), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(partitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(partitions("partitions_revoked")),
		kgo.OnPartitionsLost(partitions("partitions_revoked")))
	if err != nil {
		log.Fatal(err)
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ending.Err() == nil {
		fetches := client.PollFetches(ending)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ending.Err() == nil {
				log.Printf("%s-%d: %v", topic, partition, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			say(map[string]any{"name": "record_data", "value": string(record.Value)})
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			log.Printf("commit: %v", err)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

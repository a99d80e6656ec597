//! rskafka against a broker: smoke BOOTSTRAP TOPIC RECORDS REPLICAS. Prints one JSON object of what it saw.
//! The library has no consumer groups: it reads partitions.

use chrono::Utc;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use std::collections::BTreeMap;
use std::error::Error;

const PARTITIONS: i32 = 2;

async fn smoke(bootstrap: &str, topic: &str, count: i64, replicas: i16) -> Result<serde_json::Value, Box<dyn Error>> {
    let codecs = [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    let client = ClientBuilder::new(bootstrap.split(',').map(str::to_owned).collect()).build().await?;
    client.controller_client()?.create_topic(topic, PARTITIONS, replicas, 10_000).await?;
    let mut values = vec![];
    for partition in 0..PARTITIONS {
        let partition_client = client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?;
        for (name, codec) in codecs {
            let records = (0..count)
                .filter(|n| n % i64::from(PARTITIONS) == i64::from(partition))
                .map(|n| Record {
                    key: Some(n.to_string().into_bytes()),
                    value: Some(format!("{name} {n}").into_bytes()),
                    headers: BTreeMap::from([("codec".to_owned(), name.as_bytes().to_vec())]),
                    timestamp: Utc::now(),
                })
                .collect();
            partition_client.produce(records, codec).await?;
        }
        let mut offset = 0;
        loop {
            let (records, high_watermark) = partition_client.fetch_records(offset, 1..1_000_000, 1_000).await?;
            for each in records {
                values.push(String::from_utf8(each.record.value.ok_or("no value")?)?);
                offset = each.offset + 1;
            }
            if offset == high_watermark {
                break;
            }
        }
    }
    let listed = client.list_topics().await?.iter().any(|each| each.name == topic);
    let names: Vec<&str> = codecs.iter().map(|(name, _)| *name).collect();
    Ok(serde_json::json!({ "codecs": names, "listed": listed, "values": values, "committed": null }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (count, replicas) = (arguments[3].parse()?, arguments[4].parse()?);
    let seen = runtime.block_on(smoke(&arguments[1], &arguments[2], count, replicas))?;
    println!("{seen}");
    Ok(())
}

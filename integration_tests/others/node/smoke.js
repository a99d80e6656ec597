// KafkaJS against a broker: node smoke.js BOOTSTRAP TOPIC RECORDS. Prints one JSON object of what it saw.
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const [bootstrap, topic, count] = [process.argv[2], process.argv[3], Number(process.argv[4])]
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const group = `${topic}-readers`

async function main() {
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] })
  const listed = (await admin.listTopics()).includes(topic)

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [name, compression] of Object.entries(codecs)) {
    const messages = []
    for (let n = 0; n < count; n++) {
      messages.push({ key: `${n}`, value: `${name} ${n}`, partition: n % 2, headers: { codec: name } })
    }
    await producer.send({ topic, compression, acks: -1, messages })
  }
  await producer.disconnect()

  const total = count * Object.keys(codecs).length
  const values = []
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (message.headers.codec.toString() !== message.value.toString().split(' ')[0]) reject(new Error('headers'))
        values.push(message.value.toString())
        await consumer.commitOffsets([{ topic, partition, offset: `${Number(message.offset) + 1}` }])
        if (values.length === total) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()

  const offsets = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const committed = offsets[0].partitions.reduce((sum, each) => sum + Number(each.offset), 0)
  await admin.disconnect()
  console.log(JSON.stringify({ codecs: Object.keys(codecs), listed, values, committed }))
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })

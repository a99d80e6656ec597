// KafkaJS against a broker: node smoke.js BOOTSTRAP TOPIC RECORDS REPLICAS. Prints one JSON object of what it saw.
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const [bootstrap, topic] = [process.argv[2], process.argv[3]]
const [count, replicationFactor] = [Number(process.argv[4]), Number(process.argv[5])]
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const group = `${topic}-readers`

async function main() {
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor }] })
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
  const { transacted, transactedOffset } = await transact(kafka, admin, `${topic}-transacted`)
  await admin.disconnect()
  console.log(JSON.stringify({
    codecs: Object.keys(codecs), listed, values, committed, transacted, transacted_offset: transactedOffset,
  }))
}

// Writes count values and an offset of a group in each of two transactions, the first of which is aborted; gives what a
// reader of committed records sees, and the offset.
async function transact(kafka, admin, target) {
  await admin.createTopics({ topics: [{ topic: target, numPartitions: 1, replicationFactor }] })
  const copiers = `${target}-copiers`
  const producer = kafka.producer({ transactionalId: copiers, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const commits of [false, true]) {
    const transaction = await producer.transaction()
    const messages = []
    for (let n = 0; n < count; n++) messages.push({ value: `${commits} ${n}` })
    await transaction.send({ topic: target, messages })
    await transaction.sendOffsets({
      consumerGroupId: copiers, topics: [{ topic, partitions: [{ partition: 0, offset: `${count}` }] }],
    })
    await (commits ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  const transacted = []
  const consumer = kafka.consumer({ groupId: `${target}-readers`, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topic: target, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        transacted.push(message.value.toString())
        if (transacted.length === count) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  const offsets = await admin.fetchOffsets({ groupId: copiers, topics: [topic] })
  const at = offsets[0].partitions.reduce((sum, each) => sum + Math.max(Number(each.offset), 0), 0)
  return { transacted, transactedOffset: at }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })

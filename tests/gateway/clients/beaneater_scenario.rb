# What beaneater's users do, on the server at the address of the first argument. It ends with an error if anything else
# happens than they expect.
require "beaneater"

def expect(what, expected, got)
  raise "#{what}: expected #{expected.inspect}, got #{got.inspect}" unless expected === got
end

def expect_error(what, error)
  yield
rescue error
  nil
else
  raise "#{what}: no #{error}"
end

client = Beaneater.new(ARGV[0])
other = Beaneater.new(ARGV[0])
tube = client.tubes["ruby"]

# put, peek, reserve, stats, delete
body = (0..255).map(&:chr).join.force_encoding("ASCII-8BIT")
put = tube.put(body, pri: 7, ttr: 50)
expect "put", "INSERTED", put[:status]
expect "peek ready", body, tube.peek(:ready).body.dup.force_encoding("ASCII-8BIT")
expect "stats of the tube", 1, tube.stats.current_jobs_ready
job = tube.reserve(1)
expect "body", body, job.body.dup.force_encoding("ASCII-8BIT")
expect "state", "reserved", job.stats.state
expect "tube", "ruby", job.tube
expect "priority", 7, job.pri
expect "ttr", 50, job.ttr
expect "touch", "TOUCHED", job.touch[:status]

# release with a delay, kick
expect "release", "RELEASED", job.release(delay: 100, pri: 9)[:status]
expect "delayed", 1, tube.stats.current_jobs_delayed
expect "peek delayed", body.size, tube.peek(:delayed).body.size
expect "kick of a delayed job", 1, tube.kick(10)[:id].to_i

# bury, kick
job = tube.reserve(1)
expect "bury", "BURIED", job.bury(pri: 3)[:status]
expect "buried", 1, tube.stats.current_jobs_buried
expect "peek buried", job.id, tube.peek(:buried).id
expect "kick of a job", "KICKED", client.jobs.find(job.id).kick[:status]
job = tube.reserve(1)
expect "buries", 1, job.stats.buries
expect "kicks", 2, job.stats.kicks
expect "reserves", 3, job.stats.reserves

# others
expect_error("delete of another's job", Beaneater::NotFoundError) { other.jobs.find(job.id).delete }
expect "delete", "DELETED", job.delete[:status]
expect_error("second delete", Beaneater::NotFoundError) { job.delete }
expect "find", nil, client.jobs.find(job.id)

# order, timeouts, watch lists
[5, 1, 3].each { |priority| tube.put("priority #{priority}", pri: priority) }
expect "order", ["priority 1", "priority 3", "priority 5"], (1..3).map { tube.reserve(1).tap(&:delete).body }
expect_error("reserve", Beaneater::TimedOutError) { tube.reserve(0) }
client.tubes.watch!("ruby", "gem")
expect "watched", %w[gem ruby], client.tubes.watched.map(&:name).sort
client.tubes.ignore("gem")
expect_error("ignore of the last tube", Beaneater::NotIgnoredError) { client.tubes.ignore("ruby") }
expect "tubes", true, client.tubes.all.map(&:name).include?("ruby")
expect "used", "ruby", client.tubes.used.name

# pause
tube.put("paused")
tube.pause(100)
expect "pause", 100, tube.stats.pause
expect_error("reserve of a paused tube", Beaneater::TimedOutError) { tube.reserve(0) }
tube.pause(0)
tube.reserve(1).delete

# a deadline; a connection that ends
tube.put("short", ttr: 1)
short = tube.reserve(1)
expect_error("reserve before a deadline", Beaneater::DeadlineSoonError) { tube.reserve(5) }
short.delete
tube.put("left behind")
other.tubes.watch!("ruby")
left = other.tubes.reserve(1)
other.close
expect "job of a client that has left", left.id, tube.reserve(2).tap(&:delete).id

# a worker
3.times { |number| tube.put("work #{number}") }
done = []
client.jobs.register("ruby") do |one|
  done << one.body
  raise Beaneater::AbortProcessingError if done.size == 3
end
client.jobs.process!(reserve_timeout: 1)
expect "work", ["work 0", "work 1", "work 2"], done

# the server
expect "version", String, client.stats.version.to_s
expect "puts", 8..1_000_000, client.stats.cmd_put
tube.clear
client.close
puts "all is as expected"

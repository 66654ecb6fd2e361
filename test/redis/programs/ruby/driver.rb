# Drives ruby-redis with the scripts of its users: reads steps and prints outcomes, as driver_test.go describes.
#
#     driver.rb CLIENT ADDRESS

require "digest"
require "json"
require "redis"
require "securerandom"

RELEASE = <<~LUA
  if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
  else
    return 0
  end
LUA

EXTEND = <<~LUA
  if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("pexpire", KEYS[1], ARGV[2])
  else
    return 0
  end
LUA

class Driver
  def initialize(address)
    host, port = address.split(":")
    @conn = Redis.new(host: host, port: port.to_i, timeout: 10)
    @values = {}
  end

  def acquire(key, ttl)
    value = SecureRandom.uuid
    return { ok: false } unless @conn.set(key, value, nx: true, px: ttl.to_i)

    @values[key] = value
    { ok: true }
  end

  def held(key)
    { ok: @conn.get(key) == @values[key] }
  end

  def extend(key, ttl)
    { ok: run(EXTEND, key, ttl) == 1 }
  end

  def release(key)
    { ok: run(RELEASE, key) == 1 }
  end

  def ttl(key)
    { ttl: @conn.pttl(key) }
  end

  def execute(step, *arguments)
    public_send(step, *arguments)
  rescue Redis::BaseError => e
    { error: e.message }
  end

  private

  # run sends the hash first, and the script if the server does not know it.
  def run(script, key, *arguments)
    keys = [key]
    argv = [@values[key], *arguments]
    @conn.evalsha(Digest::SHA1.hexdigest(script), keys: keys, argv: argv)
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("NOSCRIPT")

    @conn.eval(script, keys: keys, argv: argv)
  end
end

def show(outcome)
  puts outcome.to_json
  $stdout.flush
end

driver = Driver.new(ARGV[1])
show({ version: Redis::VERSION })
$stdin.each_line { |line| show(driver.execute(*line.split)) }

<?php
// Drives Predis, and Laravel's Cache::lock on Predis: reads steps and prints outcomes, as driver_test.go describes.
//
//     driver.php CLIENT ADDRESS

require 'Predis/autoload.php';
require 'Illuminate/Cache/autoload.php';
require 'Illuminate/Redis/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Cache\Repository;
use Illuminate\Redis\RedisManager;

const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';
const EXTEND =
    'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end';

/** Predis with the scripts of its users. */
class PredisDriver
{
    protected $conn;
    protected $values = [];

    public function __construct(array $server)
    {
        $this->conn = new Predis\Client($server);
    }

    public function version()
    {
        return Predis\Client::VERSION;
    }

    public function acquire($key, $ttl)
    {
        $value = bin2hex(random_bytes(16));
        if (!$this->conn->set($key, $value, 'PX', (int) $ttl, 'NX')) {
            return ['ok' => false];
        }
        $this->values[$key] = $value;
        return ['ok' => true];
    }

    public function held($key)
    {
        return ['ok' => $this->conn->get($key) === $this->values[$key]];
    }

    public function extend($key, $ttl)
    {
        return ['ok' => $this->conn->eval(EXTEND, 1, $key, $this->values[$key], (int) $ttl) === 1];
    }

    public function release($key)
    {
        return ['ok' => $this->conn->eval(RELEASE, 1, $key, $this->values[$key]) === 1];
    }

    public function ttl($key)
    {
        return ['ttl' => $this->conn->pttl($key)];
    }
}

/** Laravel's locks, which cannot be extended and have TTLs in seconds. */
class LaravelDriver extends PredisDriver
{
    private $cache;
    private $locks = [];

    public function __construct(array $server)
    {
        $redis = new RedisManager(null, 'predis', ['default' => $server]);
        $this->conn = $redis->connection();
        $this->cache = new Repository(new RedisStore($redis));
    }

    public function version()
    {
        return trim(shell_exec("dpkg-query --show --showformat='\${Version}' php-illuminate-cache | cut -d+ -f1"));
    }

    public function acquire($key, $ttl)
    {
        $lock = $this->cache->lock($key, intdiv((int) $ttl, 1000));
        if (!$lock->get()) {
            return ['ok' => false];
        }
        $this->locks[$key] = $lock;
        $this->values[$key] = $lock->owner();
        return ['ok' => true];
    }

    public function extend($key, $ttl)
    {
        return ['missing' => true];
    }

    public function release($key)
    {
        return ['ok' => $this->locks[$key]->release()];
    }
}

function show(array $outcome)
{
    echo json_encode($outcome), "\n";
}

[, $client, $address] = $argv;
[$host, $port] = explode(':', $address);
$server = ['host' => $host, 'port' => (int) $port, 'read_write_timeout' => 10];
$driver = $client === 'Laravel Cache::lock' ? new LaravelDriver($server) : new PredisDriver($server);
show(['version' => $driver->version()]);
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        show(call_user_func_array([$driver, $words[0]], array_slice($words, 1)));
    } catch (Predis\PredisException $e) {
        show(['error' => $e->getMessage()]);
    }
}

<?php

// What Pheanstalk's users do, on the server at the host and port of the arguments. It ends with an error if anything else
// happens than they expect.

declare(strict_types=1);

require 'Pheanstalk/autoload.php';

use Pheanstalk\Exception\DeadlineSoonException;
use Pheanstalk\Exception\ServerException;
use Pheanstalk\Pheanstalk;

function expect(string $what, $expected, $got): void
{
    if ($expected !== $got) {
        throw new RuntimeException("$what: expected " . var_export($expected, true) . ', got ' . var_export($got, true));
    }
}

function expectError(string $what, string $class, callable $call): void
{
    try {
        $call();
    } catch (Throwable $error) {
        if ($error instanceof $class) {
            return;
        }
        throw $error;
    }
    throw new RuntimeException("$what: no $class");
}

/** A value of statistics, without the quotation marks that servers since 1.13 write. */
function unquoted(string $value): string
{
    return trim($value, '"');
}

$host = $argv[1];
$port = (int) $argv[2];
$client = Pheanstalk::create($host, $port);
$other = Pheanstalk::create($host, $port);
$client->useTube('php')->watchOnly('php');

// put, peek, reserve, stats, delete
$body = implode('', array_map('chr', range(0, 255)));
$put = $client->put($body, 7, 0, 50);
expect('peek ready', $body, $client->peekReady()->getData());
$job = $client->reserveWithTimeout(1);
expect('id', $put->getId(), $job->getId());
expect('body', $body, $job->getData());
$stats = $client->statsJob($job);
expect('state', 'reserved', $stats['state']);
expect('tube', 'php', unquoted($stats['tube']));
expect('priority', '7', $stats['pri']);
expect('ttr', '50', $stats['ttr']);
$client->touch($job);

// release with a delay, kick
$client->release($job, 9, 100);
expect('delayed', '1', $client->statsTube('php')['current-jobs-delayed']);
expect('peek delayed', $job->getId(), $client->peekDelayed()->getId());
expect('kick of a delayed job', 1, $client->kick(10));

// bury, kick
$job = $client->reserveWithTimeout(1);
$client->bury($job, 3);
expect('buried', '1', $client->statsTube('php')['current-jobs-buried']);
expect('peek buried', $job->getId(), $client->peekBuried()->getId());
$client->kickJob($job);
$job = $client->reserveWithTimeout(1);
$stats = $client->statsJob($job);
expect('counts', ['3', '1', '1', '2'], [$stats['reserves'], $stats['releases'], $stats['buries'], $stats['kicks']]);

// others
expectError('delete of another\'s job', ServerException::class, fn () => $other->delete($job));
$client->delete($job);
expectError('second delete', ServerException::class, fn () => $client->delete($job));
expectError('peek', ServerException::class, fn () => $client->peek($job));
expect('nothing is ready', null, $client->peekReady());

// order, timeouts, watch lists
foreach ([5, 1, 3] as $priority) {
    $client->put("priority $priority", $priority);
}
foreach ([1, 3, 5] as $priority) {
    $job = $client->reserveWithTimeout(1);
    expect('order', "priority $priority", $job->getData());
    $client->delete($job);
}
expect('reserve', null, $client->reserveWithTimeout(0));
$client->watch('composer');
$watched = array_map('unquoted', $client->listTubesWatched(true));
sort($watched);
expect('watched', ['composer', 'php'], $watched);
$client->ignore('composer');
expect('used', 'php', $client->listTubeUsed(true));
expect('tubes', true, in_array('php', array_map('unquoted', $client->listTubes()), true));

// pause
$client->put('paused');
$client->pauseTube('php', 100);
expect('pause', '100', $client->statsTube('php')['pause']);
expect('reserve of a paused tube', null, $client->reserveWithTimeout(0));
$client->resumeTube('php');
$client->delete($client->reserveWithTimeout(1));

// a deadline; a connection that ends
$client->put('short', 0, 0, 1);
$job = $client->reserveWithTimeout(1);
expectError('reserve before a deadline', DeadlineSoonException::class, fn () => $client->reserveWithTimeout(5));
$client->delete($job);
$left = $client->put('left behind');
expect('reserved by another', $left->getId(), $other->watchOnly('php')->reserveWithTimeout(1)->getId());
unset($other);
gc_collect_cycles();
$job = $client->reserveWithTimeout(2);
expect('job of a client that has left', $left->getId(), $job->getId());
$client->delete($job);

// the server
$stats = $client->stats();
expect('version', true, unquoted($stats['version']) !== '');
expect('puts', true, (int) $stats['cmd-put'] >= 7);
echo "all is as expected\n";

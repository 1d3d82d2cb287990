<?php
// What the rounds need beyond the settings that MediaWiki's installer wrote. They
// change /srv/round.json between rounds.

require_once __DIR__ . '/Burn.php';

$wgMainCacheType = CACHE_ACCEL;
$wgParserCacheType = CACHE_ACCEL;
$wgSessionCacheType = CACHE_DB;
$wgCacheDirectory = '/srv/cache';
$wgUseFileCache = false;
$wgJobRunRate = 0;
$wgEnableUploads = true;
$wgUseImageMagick = true;
$wgImageMagickConvertCommand = '/srv/site/counted-convert';
$round = json_decode( file_get_contents( '/srv/round.json' ), true );
$burnSeconds = $round['burnSeconds'];
// Otherwise a thumbnail that has failed four times is refused without a try.
$wgAttemptFailureEpoch = $round['failureEpoch'] ?? uniqid( '', true );
if ( $round['recommended'] ) {
	require __DIR__ . '/Recommended.php';
	$wgPoolCountClientConf = $round['client'] + $wgPoolCountClientConf;
	foreach ( $wgPoolCounterConf as $name => $pool ) {
		$wgPoolCounterConf[$name] = ( $round['pools'][$name] ?? [] ) + $pool;
	}
} else {
	$wgPoolCounterConf = $round['pools'] ?: null;
	$wgPoolCountClientConf = $round['client'];
}
$wgDebugLogGroups['poolcounter'] = [ 'destination' => '/srv/log/poolcounter', 'level' => $round['logLevel'] ];
if ( $round['messages'] ) {
	$wgMessagesDirs['PoolCounterMessages'] = '/srv/site/i18n';
	$wgCacheDirectory = '/srv/cache-with-messages';
}

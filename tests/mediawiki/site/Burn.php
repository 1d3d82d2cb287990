<?php
// A tag that is expensive to render: <burn/> uses up processor time and counts its renders
// in a file, a line as a render begins ("began 1 PID TIME READER") and one as it ends
// ("ended 1 PID TIME READER"). TIME is of the monotonic clock, READER a parameter of the request.
// It does not end while /srv/hold exists, unless the number in that file is not below its own.

$wgHooks['ParserFirstCallInit'][] = static function ( $parser ) {
	$parser->setHook( 'burn', 'burn' );
};

/** Processor time that this process has used, in seconds. */
function usedSeconds(): float {
	$usage = getrusage();
	return $usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']
		+ ( $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'] ) / 1e6;
}

function noteRender( string $what ): int {
	$file = fopen( '/srv/renders', 'c+' );
	flock( $file, LOCK_EX );
	$number = substr_count( stream_get_contents( $file ), $what ) + 1;
	$reader = (int)( $_GET['reader'] ?? 0 );
	fwrite( $file, "$what $number " . getmypid() . ' ' . hrtime( true ) / 1e9 . " $reader\n" );
	fclose( $file );
	return $number;
}

function isHeld( int $number ): bool {
	clearstatcache();
	// The file may be removed after the first look.
	return file_exists( '/srv/hold' ) && (int)@file_get_contents( '/srv/hold' ) < $number;
}

function burn(): string {
	global $burnSeconds;
	$number = noteRender( 'began' );
	$end = usedSeconds() + $burnSeconds;
	while ( usedSeconds() < $end ) {
		for ( $i = 0; $i < 1000; $i++ ) {
			md5( (string)$i );
		}
	}
	while ( isHeld( $number ) ) {
		usleep( 10000 );
	}
	noteRender( 'ended' );
	return "<b>render $number of this page</b>";
}

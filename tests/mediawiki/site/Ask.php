<?php
// Uses MediaWiki's PoolCounter through the class that extensions use, and reports each
// step to the test's server, which records it in order with the lines it receives.

use MediaWiki\PoolCounter\PoolCounterWorkViaCallback;

require_once '/usr/share/mediawiki/maintenance/Maintenance.php';

class Ask extends Maintenance {
	public function execute() {
		foreach ( json_decode( getenv( 'STEPS' ), true ) as $step ) {
			$this->take( $step );
		}
		$this->mark( 'the request ends' );
	}

	/** Takes a lock, and the locks `inside` it, and reports the result. */
	private function take( array $step ) {
		$callbacks = [
			'doWork' => function () use ( $step ) {
				$this->mark( 'works' );
				usleep( 1000 * ( $step['pauseMs'] ?? 0 ) );
				foreach ( $step['inside'] ?? [] as $inner ) {
					$this->take( $inner );
				}
				return 'done by ourselves';
			},
			'error' => static fn ( $status ) => 'error ' . $status->getMessage( false, false, 'en' )->plain(),
		];
		if ( $step['anyone'] ?? false ) {
			$callbacks['doCachedWork'] = static fn () => 'done by another';
			$hasOldCopy = $step['oldCopy'] ?? true;
			$callbacks['fallback'] = static fn ( $fast ) => $hasOldCopy ? 'the stale copy' : false;
		}
		try {
			$work = new PoolCounterWorkViaCallback( $step['type'] ?? 'Test', $step['key'], $callbacks );
			$this->mark( 'result: ' . var_export( $work->execute(), true ) );
		} catch ( Throwable $e ) {
			$this->mark( get_class( $e ) . ': ' . $e->getMessage() );
		}
	}

	private function mark( string $text ) {
		$server = stream_socket_client( 'tcp://' . getenv( 'SERVER' ) );
		fwrite( $server, "MARK $text\n" );
		fgets( $server );
		fclose( $server );
	}
}

$maintClass = Ask::class;
require_once RUN_MAINTENANCE_IF_MAIN;
